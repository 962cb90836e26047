// Package systemd is what a daemon and the systemd that started it tell each other: that it is ready, what it does, that it is
// well, and which sockets systemd keeps open for it while it is started again (sd_notify(3), sd_listen_fds(3)).
//
// A process that systemd did not start, or another system, has no Link, and all that can be said to none is nothing.
package systemd
