package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config/yaml"
	"rouse/internal/atomicfile"
	"rouse/internal/owner"
	"rouse/internal/text"
)

//go:embed templates
var templateFiles embed.FS

// starters describes the templates of init, by name.
var starters = map[string]struct {
	folders []string // folders that the configuration needs
	next    string   // next steps for the user
}{
	"digest":         {[]string{"notes"}, "put files into %[1]s/notes, set a model (rouse secrets set anthropic), and try it: rouse run digest --wait --config %[2]s"},
	"sorter":         {[]string{"inbox"}, "rouse serve --config %[2]s, then copy a picture or a PDF file into %[1]s/inbox"},
	"backup":         {[]string{"data", "backups"}, "put the files to back up into %[1]s/data, and try it: rouse run backup --wait --config %[2]s"},
	"page-watch":     {nil, "write the address of your page into %[2]s, in grants and in web_fetch, and try it: rouse run page --wait --config %[2]s"},
	"webhook":        {nil, "rouse secrets set github-hook --config %[2]s, rouse serve --config %[2]s, and try it: rouse webhooks send issues --event issues --config %[2]s"},
	"claude-morning": {[]string{"repo"}, "clone your repository into %[1]s/repo, rouse secrets set anthropic --config %[2]s, and try it: rouse run morning --wait --config %[2]s"},
}

func newInit() *cobra.Command {
	var template string
	names := slices.Sorted(maps.Keys(starters))
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Writes a starter rouse.yaml and an inbox, or one of the templates",
		Long: `Writes a rouse.yaml that works, with the folders that it needs. It never replaces a file.

Without --template it imports CSV files that are dropped into an inbox. The templates are: ` + strings.Join(names, ", ") + ".",
		Example: `  rouse init
  rouse init --template backup ./nightly`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := cmp.Or(strings.Join(args, ""), ".")
			if cmd.Flags().Changed("template") {
				return initTemplate(cmd, dir, template, names)
			}
			path, err := writeStarter(dir, yaml.Starter(), "inbox")
			if err != nil {
				return err
			}
			warnNotTaken(cmd.ErrOrStderr(), path)
			return sayf(cmd.OutOrStdout(), "wrote %s and %s\nnext: rouse serve --config %[1]s, then copy a CSV file into %[2]s\n", path, filepath.Join(dir, "inbox"))
		},
	}
	cmd.Flags().StringVar(&template, "template", "", "`name` of the template: "+strings.Join(names, ", "))
	return cmd
}

// initTemplate creates the folder of a template.
func initTemplate(cmd *cobra.Command, dir, name string, names []string) error {
	t, ok := starters[name]
	if !ok {
		return usagef("%s", text.NoSuch("template", name, names))
	}
	content, err := templateFiles.ReadFile("templates/" + name + "/rouse.yaml")
	if err != nil {
		return err
	}
	file, err := writeStarter(dir, content, t.folders...)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", file)

	others, err := fs.ReadDir(templateFiles, "templates/"+name)
	if err != nil {
		return err
	}
	for _, entry := range others {
		if entry.Name() == "rouse.yaml" {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		content, err := templateFiles.ReadFile("templates/" + name + "/" + entry.Name())
		if err == nil {
			err = writeOwn(path, content, 0o755)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", path)
	}

	warnNotTaken(cmd.ErrOrStderr(), file)
	return sayf(cmd.OutOrStdout(), "next: "+t.next+"\n", dir, file)
}

// writeOwn writes a file of the starter or of a template, unless the file exists.
func writeOwn(path string, content []byte, mode fs.FileMode) error {
	err := writeNew(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists and was left as it is; choose another folder: rouse init DIR", path)
	}
	return err
}

// warnNotTaken prints a warning if other commands will not find a configuration at this path.
func warnNotTaken(w io.Writer, path string) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = yaml.CheckFound(path, os.Getenv)
	}
	if err != nil {
		fmt.Fprintf(w, "rouse: warning: without --config the next command refuses this file: %v\n", err)
	}
}

// writeStarter writes the starter configuration. It never replaces an existing file.
func writeStarter(dir string, content []byte, folders ...string) (string, error) {
	for _, name := range append([]string{"."}, folders...) {
		if err := owner.MakeFolders(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("cannot create %s: %w", filepath.Join(dir, name), err)
		}
	}

	path := filepath.Join(dir, "rouse.yaml")
	if err := writeOwn(path, content, 0o644); err != nil {
		return "", err
	}

	// The starter names the schema, so that editors complete keys. It works without the schema.
	schema, err := yaml.Schema()
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, "rouse.schema.json"), schema, 0o644)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(dir, "rouse.schema.json"), owner.ApplyUmask(0o644))
	}
	return path, err
}
