package daemon

import (
	"runtime"
	"runtime/debug"
)

// Set by -ldflags "-X rouse/cmd/internal/daemon.version=v1.2.3" in releases, else empty.
var (
	version  string
	commit   string
	date     string // of the commit, RFC 3339
	releases string // the address that says which releases there are
)

// Build says what this program was built of.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "" where nobody knows
	Date     string `json:"date"`   // of the commit
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Releases string `json:"releases"` // the address that says which releases there are; "" where the build names none
}

// ThisBuild is what this program was built of.
func ThisBuild() Build {
	b := Build{Version: Version(), Commit: commit, Date: date, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Releases: releases}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}

	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && b.Commit == "":
			b.Commit = s.Value
		case s.Key == "vcs.time" && b.Date == "":
			b.Date = s.Value
		case s.Key == "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Version is that of the release, or the module's as the build recorded it, or the commit, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}

	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}

	return "devel"
}
