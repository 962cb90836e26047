package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config"
	"rouse/internal/atomicfile"
	"rouse/internal/owner"
)

func newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Writes a starter rouse.yaml and an inbox",
		Args:  cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}

			path, err := writeStarter(dir)
			if err != nil {
				return err
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s and %s\nnext: rouse serve --config %s, then copy a CSV file into %s\n",
				path, filepath.Join(dir, "inbox"), path, filepath.Join(dir, "inbox"))
			warnNotTaken(cmd.ErrOrStderr(), path)
			return err
		}),
	}
}

// warnNotTaken says of a configuration that it will not be taken without its name where it lies, and why.
func warnNotTaken(w io.Writer, path string) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = config.CheckFound(path, os.Getenv)
	}
	if err != nil {
		fmt.Fprintf(w, "rouse: warning: without --config the next command refuses this file: %v\n", err)
	}
}

// writeStarter never replaces a file that exists.
func writeStarter(dir string) (string, error) {
	if err := owner.MakeFolders(filepath.Join(dir, "inbox")); err != nil {
		return "", fmt.Errorf("cannot create %s: %w", filepath.Join(dir, "inbox"), err)
	}

	path := filepath.Join(dir, "rouse.yaml")
	err := atomicfile.StreamNew(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(config.Starter())
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s exists and was left as it is; choose another folder: rouse init DIR", path)
	}
	if err == nil {
		err = os.Chmod(path, owner.Usual(0o644))
	}
	if err != nil {
		return "", err
	}

	// The starter's first line names it, so that editors complete and check from the start.
	// A schema that cannot be written costs completion in an editor, and the starter is there.
	schema, err := config.Schema()
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, "rouse.schema.json"), schema, 0o644)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(dir, "rouse.schema.json"), owner.Usual(0o644))
	}

	return path, err
}
