//go:build !unix

package install

import "os/exec"

// endGroup does nothing. Git's subprocesses exit when their pipes are closed.
func endGroup(*exec.Cmd) {}
