// Command rouse wakes AI agents when something happens.
//
// Each verb has a file of its own; daemon.go wires the parts; main only parses and exits.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
)

func main() {
	sandbox.Child()
	preview.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
