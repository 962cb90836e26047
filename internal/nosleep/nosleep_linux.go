package nosleep

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// The D-Bus names of logind. It keeps the machine awake while the file that it returned is open.
const (
	login       = "org.freedesktop.login1"
	loginObject = "/org/freedesktop/login1"
	systemBus   = "unix:path=/run/dbus/system_bus_socket"
)

func hold(ctx context.Context, why string) (release func() error, err error) {
	address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if address == "" {
		address = systemBus
	}

	// Use a separate connection. It can be closed because the file keeps the lock.
	bus, err := dbus.Dial(address, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("the system bus does not answer: %w", err)
	}
	defer func() { err = errors.Join(err, bus.Close()) }()
	if err := errors.Join(bus.Auth(nil), bus.Hello()); err != nil {
		return nil, fmt.Errorf("the system bus does not answer: %w", err)
	}

	var fd dbus.UnixFD
	if err := bus.Object(login, loginObject).CallWithContext(ctx, login+".Manager.Inhibit", 0, "sleep:idle", "rouse", why, "block").Store(&fd); err != nil {
		return nil, fmt.Errorf("logind does not keep this machine awake: %w", err)
	}
	unix.CloseOnExec(int(fd)) // a child process would keep it open
	return os.NewFile(uintptr(fd), "awake").Close, nil
}
