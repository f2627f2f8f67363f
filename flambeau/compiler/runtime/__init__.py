"""Running a recording: buffers in one arena, blocks of arguments, and a native driver that makes all calls."""
