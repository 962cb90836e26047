package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/cmd/internal/daemon"
	"rouse/skills/module"
)

// TestMain makes this program what the measurements start under the name rouse: their children,
// and a daemon.
func TestMain(m *testing.M) {
	sandbox.Child()
	preview.Child()
	module.Child()
	testscript.Main(m, map[string]func(){"rouse": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()

		if err := rouse(ctx, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}})
}

func rouse(ctx context.Context, args []string) error {
	switch {
	case len(args) > 2 && args[0] == "bench" && args[1] == ChildVerb:
		return Child(ctx, args[2:], os.Stdin, os.Stdout)
	case len(args) == 3 && args[0] == "serve":
		return serve(ctx, args[2])
	case args[0] == "runs":
		return openHome(ctx, args[len(args)-1])
	}
	return fmt.Errorf("no measurement starts rouse %q", args)
}

func serve(ctx context.Context, path string) error {
	cfg, err := daemon.Load(path, "")
	if err != nil {
		return err
	}

	d, err := daemon.Open(ctx, daemon.Options{Home: string(cfg.Home), Config: cfg, Serves: true, Logger: daemon.QuietLogger()})
	if err != nil {
		return err
	}
	defer d.Close()

	return d.Serve(ctx, func(context.Context) error {
		_, err := fmt.Println("ready")
		return err
	})
}

// openHome is what every command does that finds no daemon.
func openHome(ctx context.Context, path string) error {
	cfg, err := daemon.Load(path, "")
	if err != nil {
		return err
	}
	d, err := daemon.Open(ctx, daemon.Options{Home: string(cfg.Home), Config: cfg, Logger: daemon.QuietLogger()})
	if err != nil {
		return err
	}
	d.Close()
	return nil
}

// printFigures writes a row of words for each figure.
func printFigures(w io.Writer, figures []Figure) error {
	for _, f := range figures {
		if _, err := fmt.Fprintln(w, strings.Join(f.Row(), "  ")); err != nil {
			return err
		}
	}
	return nil
}
