"""Models behind one interface: loading, running, and the tokens they speak. Imports no torch by itself."""
