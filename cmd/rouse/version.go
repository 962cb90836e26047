package main

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/releases"
	"rouse/internal/text"
)

// releasesVariable is the environment variable with the address of the releases.
const releasesVariable = "ROUSE_RELEASES_URL"

// versionReport is the output of `rouse version --json`.
type versionReport struct {
	buildinfo.Info
	Latest    string `json:"latest,omitempty"` // with --check
	LatestURL string `json:"latest_url,omitempty"`
	Published string `json:"latest_published_at,omitempty"`
	Newer     *bool  `json:"newer,omitempty"` // missing if this build has no comparable version
}

func newVersion() *cobra.Command {
	var check bool
	var address string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Prints the version; --check asks whether there is a newer one",
		Long: `Prints the version, and what it was built of.

--check asks whether there is a newer release, and exits 1 if there is, or if nobody could be
asked. Nothing is ever asked without it. It asks at --url, $` + releasesVariable + `, or the address that this
build was given, for a release or a list of them in the JSON of GitHub's API (tag_name, html_url).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report := versionReport{Info: buildinfo.This()}
			if !check && address != "" {
				return usagef("--url goes with --check")
			}
			if check {
				if err := report.ask(cmd, address); err != nil {
					return err
				}
			}

			newer := report.Newer != nil && *report.Newer
			return failIf(newer, jsonOr(cmd, report, func() error { return report.print(cmd.OutOrStdout(), check) }))
		},
	}

	cmd.Flags().BoolVar(&check, "check", false, "ask whether there is a newer release; exits 1 if there is")
	cmd.Flags().StringVar(&address, "url", "", "`address` that says which releases there are (default $"+releasesVariable+", or that of the build)")
	return withJSON(cmd)
}

// ask sets the latest release.
func (r *versionReport) ask(cmd *cobra.Command, address string) error {
	address = cmp.Or(address, os.Getenv(releasesVariable), r.Releases)
	if address == "" {
		return usagef("nobody knows where releases of this build are: give --url https://…, or set %s", releasesVariable)
	}

	latest, err := releases.Latest(cmd.Context(), address, "rouse/"+r.Version)
	if err != nil {
		return fmt.Errorf("whether there is a newer release is not known: %w", err)
	}
	r.Latest, r.LatestURL, r.Published = latest.Version, latest.URL, latest.Published
	if newer, known := latest.Newer(r.Version); known {
		r.Newer = &newer
	}
	return nil
}

// buildLine describes a build in one line, as in --version.
func buildLine(b buildinfo.Info) string {
	return fmt.Sprintf("rouse %s (%s, %s/%s)", b.Version, b.Go, b.OS, b.Arch)
}

func (r *versionReport) print(w io.Writer, check bool) error {
	_, err := fmt.Fprintln(w, buildLine(r.Info))
	if err != nil || !check {
		return err
	}

	latest := text.OneLine(r.Latest)
	switch {
	case r.Newer == nil:
		return sayf(w, "the latest release is %s; this is a build of a commit, which is neither older nor newer\n", latest)
	case !*r.Newer:
		return sayf(w, "this is the latest release\n")
	case r.LatestURL != "":
		latest += " is newer: " + text.OneLine(r.LatestURL)
	default:
		latest += " is newer"
	}
	return sayf(w, "%s\n", latest)
}
