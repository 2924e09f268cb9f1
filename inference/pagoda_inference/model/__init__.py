"""Models behind one interface: loading, running, and the tokens they speak. Cheap to import: torch comes when needed."""
