// Command rouse wakes AI agents when something happens.
//
// Verbs on one subject share a file. A verb parses the command line, asks the daemon (or opens the home
// itself if none runs), prints, and exits. session.go finds configuration and home and asks the API,
// root.go has the exit codes and checks arguments, output.go has what listings share.
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
