package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/atomicfile"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// dbImport imports a file as its owner. On a terminal a long one says how far it is.
func dbImport(cmd *cobra.Command, at *place, o dbOptions, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read the file to import: %w", err)
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the file to import: %w", err)
	}
	if info.IsDir() {
		return usagef("%s is a folder; name a file in it", path)
	}

	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	// The file is streamed, so the daemon learns the name (for the format and the table) and the
	// size (for the progress) from the query.
	q := url.Values{"name": {filepath.Base(path)}, "size": {strconv.FormatInt(info.Size(), 10)}}
	for key, value := range map[string]string{"table": o.table, "format": o.format, "mode": o.mode} {
		if value != "" {
			q.Set(key, value)
		}
	}

	if len(o.keys) > 0 {
		q["key"] = o.keys
	}

	show, clear := progressLine(cmd.ErrOrStderr(), func(done, of int64) string {
		return fmt.Sprintf("%s of %s rows", text.Comma(done), text.Comma(of))
	})
	out, err := s.Import(cmd.Context(), o.path("import"), q, f, show)
	clear()
	// Only after clear: an error in the middle of the progress line would be unreadable.
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), out)
	}

	printWarnings(cmd.ErrOrStderr(), out.Warnings, out.SampleErrors)
	if _, err = fmt.Fprintf(cmd.OutOrStdout(), "%s into %s\n", text.Plural(int(out.RowsImported), "row"), out.Table); err != nil {
		return err
	}

	if out.RowsSkipped > 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s left out\n", text.Plural(int(out.RowsSkipped), "row"))
	}

	return err
}

// progressLine writes over one line of a terminal, and nothing elsewhere.
func progressLine(w io.Writer, line func(done, of int64) string) (show func(done, of int64), clear func()) {
	if !text.IsTerminal(w) {
		return func(int64, int64) {}, func() {}
	}

	width := 0
	return func(done, of int64) {
			now := line(done, of)
			// A shorter line has to cover the rest of a longer one before it.
			width = max(width, len(now))
			fmt.Fprintf(w, "\r%-*s", width, now)
		}, func() {
			if width > 0 {
				fmt.Fprintf(w, "\r%s\r", strings.Repeat(" ", width))
			}
		}
}

func printWarnings(w io.Writer, warnings, samples []string) {
	for _, warning := range warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	for _, sample := range samples {
		fmt.Fprintln(w, "  "+sample)
	}
}

// dbExport writes the answer of a query to a file, whole or not at all, or to standard
// output.
func dbExport(cmd *cobra.Command, at *place, o dbOptions, sql string) error {
	// StreamNew below would refuse too, but without naming the flag that helps.
	if o.to != "" && !o.overwrite {
		if _, err := os.Lstat(o.to); !errors.Is(err, fs.ErrNotExist) {
			return usagef("%s exists already; choose another name, or say --overwrite", o.to)
		}
	}

	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	ask := api.ExportRequest{SQL: sql, Format: o.format, Name: o.to}
	if o.to == "" {
		// Standard output carries the data alone: warnings go to the other stream.
		done, err := s.Export(cmd.Context(), o.path("export"), ask, cmd.OutOrStdout())
		if err == nil {
			printWarnings(cmd.ErrOrStderr(), done.Warnings, nil)
		}
		return err
	}

	var done api.Exported
	stream := atomicfile.StreamNew
	if o.overwrite {
		stream = atomicfile.Stream
	}

	err = stream(o.to, 0o644, func(w io.Writer) error {
		done, err = s.Export(cmd.Context(), o.path("export"), ask, w)
		return err
	})
	if err == nil {
		err = os.Chmod(o.to, owner.Usual(0o644)) // it is to be passed on, unlike what is kept in the home
	}
	if err != nil {
		return err
	}

	printWarnings(cmd.ErrOrStderr(), done.Warnings, nil)
	if o.json {
		return printJSON(cmd.OutOrStdout(), struct {
			Path string `json:"path"`
			api.Exported
		}{o.to, done})
	}

	return sayf(cmd.OutOrStdout(), "%s into %s\n", text.Plural(int(done.RowsExported), "row"), o.to)
}
