"""Server-rendered pages about people."""
