package nosleep

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// hold starts caffeinate, which ends with this process at the latest.
func hold(_ context.Context, _ string) (release func() error, err error) {
	c := exec.Command("/usr/bin/caffeinate", "-i", "-s", "-w", strconv.Itoa(os.Getpid())) //nolint:noctx // caffeinate must outlive the caller
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("caffeinate does not keep this machine awake: %w", err)
	}

	return func() error {
		err := c.Process.Kill()
		_ = c.Wait() // always fails after Kill
		return err
	}, nil
}
