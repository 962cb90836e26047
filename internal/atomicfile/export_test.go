package atomicfile

// RenameViaPlaceholder is for file systems without links; those that tests run on have them.
var RenameViaPlaceholder = renameViaPlaceholder

// ReserveAndRename is for systems without a rename that refuses to replace.
var ReserveAndRename = reserveAndRename
