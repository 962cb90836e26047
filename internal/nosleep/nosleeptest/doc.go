// Package nosleeptest provides a fake logind on a private D-Bus for tests. It is empty except on
// Linux.
package nosleeptest
