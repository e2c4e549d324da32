"""The codes of messages, lines and events in integer arrays."""

SNAPSHOT, UPDATE, OTHER, BAD = 0, 1, 2, 3  # kinds of messages; OTHER: heartbeat, acknowledgement, status; BAD: unreadable
UNKNOWN, LEVEL3, BOOK, TRADE, HEARTBEAT = 0, 1, 2, 3, 4  # channels of scanned lines; UNKNOWN: left to the general path
ADD, MODIFY, DELETE, EXECUTION = 0, 1, 2, 3  # events
UNKNOWN_EVENT = 255
MISSING = -1  # no time, no checksum
UNREADABLE = -2  # a field that exists and cannot be read
OFF_GRID = -3  # a number with more decimals than the instrument has
