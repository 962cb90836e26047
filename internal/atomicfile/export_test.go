package atomicfile

// RenameViaPlaceholder is what file systems without links need, and those of tests have them.
var RenameViaPlaceholder = renameViaPlaceholder
