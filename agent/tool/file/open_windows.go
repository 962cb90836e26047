package file

// doNotWait is nothing: folders hold no pipes here.
const doNotWait = 0
