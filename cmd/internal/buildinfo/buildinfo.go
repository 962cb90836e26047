// Package buildinfo tells which version of rouse this program is, and what it was built from.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// Set by -ldflags "-X rouse/cmd/internal/buildinfo.version=v1.2.3" in releases, else empty.
var (
	version  string
	commit   string
	date     string // of the commit, RFC 3339
	releases string // address of the list of releases
)

// Info describes the build of a program.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "" if unknown
	Date     string `json:"date"`   // of the commit
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Releases string `json:"releases"` // address of the list of releases, "" if the build names none
}

// This returns the build information of this program.
func This() Info {
	return Info{Version: Version(), Commit: cmp.Or(commit, built("vcs.revision")), Date: cmp.Or(date, built("vcs.time")), Modified: built("vcs.modified") == "true",
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Releases: releases}
}

// Version returns the version of the release, or of the module, or the commit, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	if revision := built("vcs.revision"); len(revision) >= 12 {
		return "devel-" + revision[:12]
	}
	return "devel"
}

// built returns a setting that Go recorded in the build, or "".
func built(setting string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == setting {
				return s.Value
			}
		}
	}
	return ""
}
