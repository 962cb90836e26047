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
			return err
		}),
	}
}

// writeStarter never replaces a file that exists.
func writeStarter(dir string) (string, error) {
	if err := os.MkdirAll(filepath.Join(dir, "inbox"), 0o755); err != nil {
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
	if err != nil {
		return "", err
	}

	// The starter's first line names it, so that editors complete and check from the start.
	// A schema that cannot be written costs completion in an editor, and the starter is there.
	schema, err := config.Schema()
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, "rouse.schema.json"), schema, 0o644)
	}

	return path, err
}
