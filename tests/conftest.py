"""Settings of all tests."""

from hypothesis import settings

# No deadline: the first call of a kernel compiles it. The blob repeats a failure on another machine.
settings.register_profile("servecast", deadline=None, print_blob=True)
settings.load_profile("servecast")
