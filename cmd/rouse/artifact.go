package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/atomicfile"
	"rouse/internal/folderzip"
	"rouse/internal/owner"
	"rouse/internal/text"
)

func newArtifact(at *place) *cobra.Command {
	var to string
	var version int
	var list, asJSON bool
	cmd := &cobra.Command{
		Use:   "artifact RUN NAME",
		Short: "Prints a file that a run shared, or writes it to a file; lists a folder that it shared",
		Long: `Prints a file that a run shared, or writes it to a file: the bytes as they were then. Of a name
that the run shared more than once it is the last version, unless --version says which.

A folder is shared as one ZIP archive: --list shows its files, --to writes the archive.`,
		Example: `  rouse artifact 12 report.md
  rouse artifact 12 site.zip --list
  rouse artifact 12 site.zip --to site.zip`,
		Args: cobra.ExactArgs(2),
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, args []string, s *session) error {
			var d api.RunDetail
			if err := s.Get(cmd.Context(), "/v1/runs/"+args[0], nil, &d); err != nil {
				return err
			}

			a, err := artifactOf(d, args[1], version)
			if err != nil {
				return err
			}
			switch {
			case list && to != "":
				return usagef("--list shows what is in the archive, and --to writes it; give one of them")
			case list:
				return listArtifact(cmd, s, d.ID, a, asJSON)
			case asJSON:
				return usagef("--json goes with --list; rouse show %s --json has what the run shared", d.ID)
			}
			return fetchArtifact(cmd, s, d.ID, a, to)
		}),
	}

	cmd.Flags().BoolVar(&list, "list", false, "show the files of a folder that was shared")
	cmd.Flags().BoolVar(&asJSON, "json", false, "with --list: print JSON")
	cmd.Flags().StringVar(&to, "to", "", "write to a new `file`")
	cmd.Flags().IntVar(&version, "version", 0, "a version that the run shared (default the last)")
	return cmd
}

// listArtifact shows the files of a folder that a run shared.
func listArtifact(cmd *cobra.Command, s *session, run string, a api.Artifact, asJSON bool) error {
	var found api.ArtifactFiles
	if done, err := s.fetch(cmd, asJSON, "/v1/runs/"+run+"/artifacts/"+a.ID+"/files", nil, &found); done || err != nil {
		return err
	}
	return folderzip.Tree(cmd.OutOrStdout(), found.Files, found.More, text.OneLine, text.Size)
}

// fetchArtifact prints an artifact of a run, or writes it to a new file.
func fetchArtifact(cmd *cobra.Command, s *session, run string, a api.Artifact, to string) error {
	if to == "" {
		return s.Artifact(cmd.Context(), run, a, cmd.OutOrStdout())
	}
	// StreamNew refuses this too, but a name that is taken is a mistake of the command line
	// (exit 2). Lstat, since a dangling link takes the name as well.
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return usagef("%s exists already; choose another name", to)
	}

	err := atomicfile.StreamNew(to, 0o644, func(w io.Writer) error { return s.Artifact(cmd.Context(), run, a, w) })
	if err == nil {
		err = os.Chmod(to, owner.Usual(0o644)) // it is to be passed on, unlike what is kept in the home
	}
	if err != nil {
		return err
	}

	return sayf(cmd.OutOrStdout(), "%s of run %s into %s\n", artifactText(a), run, to)
}

// artifactOf is a version of a name that a run shared, 0 for the last.
func artifactOf(d api.RunDetail, name string, version int) (api.Artifact, error) {
	var known []string
	// Versions are listed in the order in which they were shared, so the last one comes up first.
	for _, a := range slices.Backward(d.ArtifactsDetail) {
		if a.Name != name {
			continue
		}
		if version == 0 || a.Version == version {
			return a, nil
		}
		// In front, since the loop runs backward and people count forward.
		known = append([]string{strconv.Itoa(a.Version)}, known...)
	}
	if len(known) > 0 {
		return api.Artifact{}, usagef("run %s has shared no version %d of %s; it has shared %s", d.ID, version, name, strings.Join(known, ", "))
	}
	if len(d.Artifacts) == 0 {
		return api.Artifact{}, usagef("run %s has shared nothing", d.ID)
	}

	return api.Artifact{}, usagef("run %s has shared no %q; it has: %s", d.ID, name, strings.Join(d.Artifacts, ", "))
}

func artifactText(a api.Artifact) string {
	return fmt.Sprintf("%s (version %d, %s)", a.Name, a.Version, text.Size(a.Size))
}

// printArtifacts says what the run shared, and how to get it.
func printArtifacts(w io.Writer, d api.RunDetail) {
	for _, a := range d.ArtifactsDetail {
		fmt.Fprintf(w, "  shared    %s", artifactText(a))
		if a.Description != "" {
			fmt.Fprintf(w, "  %s", shorten(a.Description, 160))
		}
		fmt.Fprintln(w)
	}
	if len(d.Artifacts) > 0 {
		fmt.Fprintf(w, "            rouse artifact %s NAME\n", d.ID)
	}
}
