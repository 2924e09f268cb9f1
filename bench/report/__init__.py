"""Reports of benchmarks as HTML: single files that need nothing else, with tables and SVG plots, without JavaScript."""
