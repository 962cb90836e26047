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

func newArtifact(env *cli) *cobra.Command {
	var to string
	var version int
	var list bool
	cmd := &cobra.Command{
		Use:   "artifact RUN NAME",
		Short: "Prints a file that a run shared, or writes it to a file; lists a folder that it shared",
		Long: `Prints a file that a run shared, or writes it to a file: the bytes as they were then. Of a name
that the run shared more than once it is the last version, unless --version says which.

A folder is shared as one ZIP archive: --list shows its files, --to writes the archive.`,
		Example: `  rouse artifact 12 report.md
  rouse artifact 12 site.zip --list
  rouse artifact 12 site.zip --to site.zip`,
		RunE: env.with(toRead, func(s *session, args []string) error {
			var d api.RunDetail
			if err := s.get("/v1/runs/"+args[0], nil, &d); err != nil {
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
				var found api.ArtifactFiles
				return s.show("/v1/runs/"+d.ID+"/artifacts/"+a.ID+"/files", nil, &found, func() error {
					return folderzip.Tree(s.out, found.Files, found.More, text.OneLine, text.Size)
				})
			case wantsJSON(s.cmd):
				return usagef("--json goes with --list; rouse show %s --json has what the run shared", d.ID)
			}
			return fetchArtifact(s, d.ID, a, to)
		}),
	}

	cmd.Flags().BoolVar(&list, "list", false, "show the files of a folder that was shared")
	cmd.Flags().Bool("json", false, "with --list: print JSON")
	cmd.Flags().StringVar(&to, "to", "", "write to a new `file`")
	cmd.Flags().IntVar(&version, "version", 0, "a version that the run shared (default the last)")
	return cmd
}

// fetchArtifact prints an artifact of a run, or writes it to a new file.
func fetchArtifact(s *session, run string, a api.Artifact, to string) error {
	write := func(w io.Writer) error { return s.Artifact(s.cmd.Context(), run, a, w) }
	if to == "" {
		return write(s.out)
	}
	err := writeNew(to, 0o644, write)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s exists already; choose another name", to)
	}
	if err != nil {
		return err
	}
	return sayf(s.out, "%s of run %s into %s\n", artifactText(a), run, to)
}

// writeNew writes a file with its user's default mode. It returns fs.ErrExist if the file exists.
func writeNew(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if err := atomicfile.StreamNew(path, mode, write); err != nil {
		return err
	}
	return os.Chmod(path, owner.ApplyUmask(mode))
}

// artifactOf returns one version of a shared artifact. Version 0 means the latest.
func artifactOf(d api.RunDetail, name string, version int) (api.Artifact, error) {
	var known []string
	// Versions are listed in the order in which they were shared, so the latest comes first here.
	for _, a := range slices.Backward(d.ArtifactsDetail) {
		if a.Name != name {
			continue
		}
		if version == 0 || a.Version == version {
			return a, nil
		}
		// Prepend, because the loop runs backwards.
		known = append([]string{strconv.Itoa(a.Version)}, known...)
	}
	switch {
	case len(known) > 0:
		return api.Artifact{}, usagef("run %s has shared no version %d of %s; it has shared %s", d.ID, version, name, strings.Join(known, ", "))
	case len(d.Artifacts) == 0:
		return api.Artifact{}, usagef("run %s has shared nothing", d.ID)
	}
	return api.Artifact{}, usagef("run %s has shared no %q; it has: %s", d.ID, name, strings.Join(d.Artifacts, ", "))
}

func artifactText(a api.Artifact) string {
	return fmt.Sprintf("%s (version %d, %s)", a.Name, a.Version, text.Size(a.Size))
}

// printArtifacts prints the artifacts of the run and the command that fetches each.
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
