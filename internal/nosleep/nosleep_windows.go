package nosleep

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/windows"
)

var setThreadExecutionState = windows.NewLazySystemDLL("kernel32.dll").NewProc("SetThreadExecutionState")

// Constants of winbase.h.
const (
	systemRequired = 0x00000001
	continuous     = 0x80000000
)

// hold starts an OS thread and keeps it, because the state belongs to the thread.
func hold(_ context.Context, _ string) (release func() error, err error) {
	began, end, ended := make(chan error), make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := setState(continuous | systemRequired)
		began <- err
		if err == nil {
			<-end
			ended <- setState(continuous)
		}
	}()

	if err := <-began; err != nil {
		return nil, err
	}
	return func() error {
		close(end)
		return <-ended
	}, nil
}

func setState(flags uintptr) error {
	if err := setThreadExecutionState.Find(); err != nil {
		return err
	}
	if before, _, err := setThreadExecutionState.Call(flags); before == 0 {
		return fmt.Errorf("Windows does not keep this machine awake: %w", err)
	}
	return nil
}
