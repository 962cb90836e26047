// Command rouse wakes AI agents when something happens.
//
// The commands on one subject share a file. A command parses its arguments, sends a request, prints
// the response, and exits. The request goes to the daemon or, without a daemon, to the same API in
// this process. session.go finds the configuration and the home, and connects to the API. root.go
// has the exit codes and checks arguments. output.go has the code that listings share.
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
	owner.RestrictUmask()
	dial.GuardDefault()
	cobra.EnableCommandSorting = false // keep the order of the groups in the help
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
