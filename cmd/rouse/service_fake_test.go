package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fakeSystemctl replaces systemctl in scripts. It accepts only the calls that rouse makes. It
// stores enabled and active services in files of $HOME, and records its calls. TestServiceOfSystemd
// uses a real systemd.
func fakeSystemctl() {
	home := os.Getenv("HOME")
	args := os.Args[1:]
	fail := func(why string) { fmt.Fprintln(os.Stderr, why); os.Exit(1) }
	if os.Getenv("FAKE_NO_BUS") != "" {
		fail("Failed to connect to bus: No medium found")
	}

	i := slices.Index(args, "--user")
	if i < 0 {
		fail("not for the user: " + strings.Join(args, " "))
	}
	args = slices.Delete(args, i, i+1)
	log, err := os.OpenFile(filepath.Join(home, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fail(err.Error())
	}
	fmt.Fprintln(log, strings.Join(args, " "))
	log.Close()

	switch strings.Join(args, " ") {
	case "show-environment":
		fmt.Printf("HOME=%s\nPATH=/usr/bin:/bin\n", home)
		return
	case "daemon-reload":
		return
	}
	if len(args) < 2 || !strings.HasSuffix(args[1], ".service") {
		fail("unknown: " + strings.Join(args, " "))
	}

	unit := filepath.Join(home, ".config", "systemd", "user", args[1])
	enabled, active := filepath.Join(home, args[1]+".enabled"), filepath.Join(home, args[1]+".active")
	has := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	if args[0] != "show" && !has(unit) {
		fail("Unit " + args[1] + " does not exist")
	}
	switch args[0] {
	case "show":
		load, file, state, sub := "not-found", "", "inactive", "dead"
		if has(unit) {
			load, file = "loaded", "disabled"
		}
		if has(enabled) {
			file = "enabled"
		}
		if has(active) {
			state, sub = "active", "running"
			fmt.Println("MainPID=1")
		}
		fmt.Printf("LoadState=%s\nUnitFileState=%s\nActiveState=%s\nSubState=%s\nNRestarts=2\nStatusText=serves 1 job\nStateChangeTimestamp=Wed 2026-11-25 08:00:00 UTC\n", load, file, state, sub)
	case "enable":
		if has(filepath.Join(home, "refuse")) {
			fail("no")
		}
		err = os.WriteFile(enabled, nil, 0o600)
	case "disable": // like systemctl, accept a service that is not enabled
		_ = os.Remove(enabled)
	case "start", "restart":
		err = os.WriteFile(active, nil, 0o600)
	case "stop":
		err = os.Remove(active)
	default:
		fail("unknown: " + strings.Join(args, " "))
	}
	if err != nil {
		fail(err.Error())
	}
}

// fakeJournalctl prints its arguments.
func fakeJournalctl() { fmt.Println("journal", strings.Join(os.Args[1:], " ")) }
