package atomicfile

// RenameViaPlaceholder is for file systems without links; those that tests run on have them.
var RenameViaPlaceholder = renameViaPlaceholder
