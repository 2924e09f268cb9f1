"""What we are compared with, each in a process of its own."""
