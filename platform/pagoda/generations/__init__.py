"""One run of an engine for a caller: begin, record, follow, stop, settle."""
