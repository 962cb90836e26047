// Command rouse wakes AI agents when something happens.
//
// Each verb has a file of its own: it parses the command line, asks the daemon (or opens the home
// itself where none runs), prints, and exits. session.go finds configuration and home, root.go has the
// exit codes, output.go what listings share.
//
// # Size
//
// A file for each verb, and the tests that need the program as a process: kills, signals, terminals
// and the attacks of docs/security.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/internal/dial"
	"rouse/internal/owner"
	"rouse/skills/module"
)

func main() {
	sandbox.Child()
	preview.Child()
	module.Child()
	owner.Tighten()
	dial.GuardDefault()
	cobra.EnableCommandSorting = false // keep the order of the groups in the help
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
