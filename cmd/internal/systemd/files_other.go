//go:build !linux

package systemd

import "time"

// There is no systemd here: nobody passes files on.
func takeFiles(string, string) []*Kept { return nil }

func rights(int) []byte { return nil }

func monotonic() (time.Duration, error) { return 0, nil }
