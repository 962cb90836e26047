// Package service has the daemon of a home run by the service manager of the user's session: systemd on Linux, launchd on
// macOS, the Task Scheduler on Windows. It begins when the user logs in and is started again when it fails.
//
// It is a service of the user and not of the machine, because the daemon acts as the user: with their files, their keyring and
// their desktop, where notices appear. Each home is a service of its own. What describes one to its manager is a text that is made here, for any system on any other, so
// that it can be shown before it is written and compared with what is there; kardianos/service brings it to systemd and launchd.
//
// Nothing is replaced that was changed since, unless its owner says so, and nothing that rouse has not written.
package service
