package atomicfile

// ReserveAndRename exports reserveAndRename for tests.
var ReserveAndRename = reserveAndRename
