package api

// Path is a path on the machine of the daemon, as a request names it. It cannot be used as the name of a file: the daemon
// decides first whether the sender of the request may name it (web.LocalPath for places of the owner, readable in the daemon
// for the file of a run).
type Path string
