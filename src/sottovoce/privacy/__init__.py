"""The trusted room: everything that stands between private records and the world."""
