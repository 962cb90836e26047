package main

import (
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/cmd/internal/cmdtest"
	"rouse/skills/module"
)

// TestMain makes the test binary act as rouse, in scripts and as a separate process.
//
// Tests must not reach the desktop or the models of their user.
func TestMain(m *testing.M) {
	sandbox.Child()
	preview.Child()
	module.Child()
	if name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"); name != "rouse" { // its environment comes from the test
		if err := errors.Join(cmdtest.Isolate(), cmdtest.Widen()); err != nil {
			log.Fatal(err)
		}
	}

	testscript.Main(m, map[string]func(){"rouse": main, "systemctl": fakeSystemctl, "journalctl": fakeJournalctl, "rouse-writer": writeInbox, "rouse-failing-disk": failingDisk})
}
