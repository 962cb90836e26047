// Package buildinfo returns the version and the build settings of this program.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// Set by -ldflags "-X rouse/cmd/internal/buildinfo.version=v1.2.3" in releases, empty otherwise.
var (
	version  string
	commit   string
	date     string // date of the commit in RFC 3339
	releases string // URL of the list of releases
)

// Info describes the build of a program.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // empty if unknown
	Date     string `json:"date"`   // date of the commit
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Releases string `json:"releases"` // URL of the list of releases; may be empty
}

// This returns the build information of this program.
func This() Info {
	return Info{Version: Version(), Commit: cmp.Or(commit, built("vcs.revision")), Date: cmp.Or(date, built("vcs.time")), Modified: built("vcs.modified") == "true",
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Releases: releases}
}

// Version returns the version of the release or module, or else the commit, or "devel".
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

// built returns a setting that Go recorded in the build, or an empty string.
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
