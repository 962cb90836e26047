//go:build linux || freebsd || netbsd || openbsd

package notify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/godbus/dbus/v5"
)

const (
	service      = "org.freedesktop.Notifications"
	busObject    = "/org/freedesktop/DBus"
	noticeObject = "/org/freedesktop/Notifications"
)

// probe returns an error if the desktop cannot show notifications. It does not start a session bus.
// markup reports whether the service interprets text as markup.
func (d desktop) probe(ctx context.Context) (markup bool, err error) {
	address := d.getenv("DBUS_SESSION_BUS_ADDRESS")
	if address == "" {
		socket := filepath.Join("/run/user", fmt.Sprint(os.Getuid()), "bus")
		if _, err := os.Stat(socket); err != nil {
			return false, unavailable("this process belongs to no desktop session (DBUS_SESSION_BUS_ADDRESS is not set)")
		}
		address = "unix:path=" + socket
	}

	// Open a private connection: the library's shared connection would outlive the session.
	bus, err := dbus.Dial(address, dbus.WithContext(ctx))
	if err == nil {
		defer func() { _ = bus.Close() }()
		err = bus.Auth(nil)
	}

	if err == nil {
		err = bus.Hello()
	}
	if err != nil {
		return false, unavailable("its session bus %s does not answer: %v", address, err)
	}

	shown, err := d.hasDisplay(ctx, bus)
	if err != nil {
		return false, fmt.Errorf("the session bus does not say who shows notifications: %w", err)
	}
	if !shown {
		return false, unavailable("nothing on its session bus shows notifications (%s has no owner)", service)
	}

	var capabilities []string
	err = bus.Object(service, noticeObject).CallWithContext(ctx, service+".GetCapabilities", 0).Store(&capabilities)
	if err != nil {
		return false, fmt.Errorf("the notification service does not answer: %w", err)
	}

	return slices.Contains(capabilities, "body-markup"), nil
}

// hasDisplay reports whether a notification service is running or can be started by the bus.
func (d desktop) hasDisplay(ctx context.Context, bus *dbus.Conn) (bool, error) {
	object := bus.Object("org.freedesktop.DBus", busObject)
	var owned bool
	err := object.CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, service).Store(&owned)
	if err != nil || owned {
		return owned, err
	}
	if d.getenv("DISPLAY") == "" && d.getenv("WAYLAND_DISPLAY") == "" {
		return false, nil // a service started now could not show anything
	}

	var startable []string
	err = object.CallWithContext(ctx, "org.freedesktop.DBus.ListActivatableNames", 0).Store(&startable)
	return slices.Contains(startable, service), err
}
