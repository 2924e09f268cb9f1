"""What we are compared with, each in a process of its own: ``peer`` is our end of it, ``child`` the other one."""
