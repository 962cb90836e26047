package atomicfile

// Reserve is what file systems without links need, and those of tests have them.
var Reserve = reserve
