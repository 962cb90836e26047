package atomicfile

// RenameViaPlaceholder is for file systems without links; those that tests run on have them.
var RenameViaPlaceholder = renameViaPlaceholder

// ReserveAndRename exports reserveAndRename for tests.
var ReserveAndRename = reserveAndRename
