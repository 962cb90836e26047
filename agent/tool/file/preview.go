package file

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"rouse/agent/model"
	"rouse/agent/preview"
	"rouse/agent/tool"
	"rouse/agentdb/tabular"
	"rouse/internal/text"
)

// maxDocument limits the size of a PDF or BMP file in bytes. It is larger than maxRaw because
// little of their content is text.
const maxDocument = 20 << 20

// preview shows a PDF, spreadsheet or BMP file. is reports whether the file is one of these.
func (f *files) preview(ctx context.Context, file *os.File, a readArgs, size int64) (e tool.Envelope, is bool, err error) {
	var show func(context.Context, io.Reader, readArgs) (tool.Envelope, error)
	most := int64(maxDocument)
	beginning := make([]byte, 5)
	n, _ := file.ReadAt(beginning, 0) // if reading fails, the text reader reports the error
	extension := strings.ToLower(filepath.Ext(a.Path))
	switch begins := string(beginning[:n]); {
	case begins == "%PDF-" || extension == ".pdf":
		show = f.pdf
	case isWorkbook(a.Path):
		show, most = f.sheet, maxRaw
		// Two letters are not enough to distinguish a picture from a text.
	case strings.HasPrefix(begins, "BM") && (extension == ".bmp" || extension == ".dib"):
		show = f.bitmap
	default:
		return e, false, nil
	}

	more := ""
	if isWorkbook(a.Path) {
		more = "; db_import reads larger ones"
	}

	switch {
	case f.viewer == nil:
		return e, true, tool.Refuse(tool.KindUnavailable, "%s is not shown here: there is nothing that reads such files", a.Path)
	case size > most:
		return e, true, tool.RefusePath(tool.KindRejected, "%s has more than the %d bytes that the file tools take%s", a.Path, most, more)
	}

	e, err = show(ctx, io.LimitReader(file, most), a)
	switch bad, faulty := errors.AsType[*preview.Fault](err); {
	case faulty:
		err = tool.RefusePath(tool.KindRejected, "%s %s", a.Path, bad.Message)
	case err == nil || errors.As(err, new(*tool.Refusal)):
	case ctx.Err() != nil:
		err = &hostError{err} // the registry reports the cancellation
	default:
		err = tool.Refuse(tool.KindUnavailable, "%s cannot be shown: %v", a.Path, err)
	}
	return e, true, err
}

// isWorkbook reports whether a file is read as a spreadsheet.
func isWorkbook(path string) bool { return strings.EqualFold(filepath.Ext(path), ".xlsx") }

type pdfResult struct {
	Kind      string `json:"kind"` // pdf
	Path      string `json:"path"`
	Text      string `json:"text"`
	Pages     int    `json:"pages"` // number of pages in the file
	StartPage int    `json:"start_page"`
	EndPage   int    `json:"end_page"`
	NextPage  int    `json:"next_page,omitempty"`
	Truncated bool   `json:"truncated"`
}

func (f *files) pdf(ctx context.Context, content io.Reader, a readArgs) (tool.Envelope, error) {
	if a.StartPage < 0 {
		return tool.Failure(tool.KindInvalidArgs, "pages are counted from 1").WithField("start_page", "1 or more"), nil
	}

	most := maxChars
	if a.MaxChars > 0 {
		most = min(a.MaxChars, maxChars)
	}

	p, err := f.viewer.PDF(ctx, content, a.StartPage, most)
	if err != nil {
		return tool.Envelope{}, err
	}
	if p.First > p.Pages {
		return tool.Failure(tool.KindInvalidArgs, "%s has %s; there is no page %d", a.Path, text.Plural(p.Pages, "page"), p.First).WithField("start_page", fmt.Sprintf("1 to %d", p.Pages)), nil
	}

	if p.Cut {
		p.Text = text.RedactedHead(p.Text+p.Rest, len(p.Rest), f.redact)
	}

	res := pdfResult{"pdf", a.Path, p.Text, p.Pages, p.First, p.Last, 0, p.Cut || p.Last < p.Pages}
	var warnings []string
	if p.Last < p.Pages {
		res.NextPage = p.Last + 1
	}

	if p.Cut {
		warnings = append(warnings, fmt.Sprintf("of page %d only the beginning is shown", p.Last))
	}

	if len(p.Unread) > 0 {
		warnings = append(warnings, fmt.Sprintf("of %s only a part could be read, or nothing: %v", text.Plural(len(p.Unread), "page"), p.Unread))
	}

	if p.Text == "" {
		warnings = append(warnings, "there are no words in these pages: they are pictures, or empty; pictures of text are not read")
	}

	return tool.Success(res, warnings...), nil
}

// bitmap shows a BMP picture as PNG, because models do not accept BMP.
func (f *files) bitmap(ctx context.Context, content io.Reader, a readArgs) (tool.Envelope, error) {
	data, err := f.viewer.PNG(ctx, content)
	if err != nil {
		return tool.Envelope{}, err
	}
	if len(data) > model.MaxImage {
		return tool.Failure(tool.KindRejected, "%s is a picture of %d bytes as PNG; a model is shown at most %d", a.Path, len(data), model.MaxImage).WithField("path", ""), nil
	}
	return pictureOf(a.Path, "image/png", data), nil
}

// Limits of the preview of a spreadsheet.
const (
	defaultSheetSize = 8 // rows and columns
	maxRows          = 50
	maxColumns       = 30
	maxCell          = 200 // characters
)

type sheetResult struct {
	Kind      string             `json:"kind"` // spreadsheet
	Path      string             `json:"path"`
	Sheet     string             `json:"sheet"`
	Sheets    []string           `json:"sheets"`
	Rows      []tabular.SheetRow `json:"rows"`
	Truncated bool               `json:"truncated"`
}

// sheet shows the first rows and columns of a spreadsheet.
func (f *files) sheet(ctx context.Context, content io.Reader, a readArgs) (tool.Envelope, error) {
	if a.MaxRows < 0 || a.MaxColumns < 0 {
		return tool.Failure(tool.KindInvalidArgs, "max_rows and max_columns must be 1 or more").WithField("max_rows", "1 to 50"), nil
	}

	rows, columns := min(cmp.Or(a.MaxRows, defaultSheetSize), maxRows), min(cmp.Or(a.MaxColumns, defaultSheetSize), maxColumns)
	p, err := f.viewer.XLSX(ctx, content, a.SheetName, rows, columns)
	if err != nil {
		return tool.Envelope{}, err
	}
	if p.Sheet == "" {
		sheets := text.List(p.Sheets, 20)
		return tool.Failure(tool.KindInvalidArgs, "%s has no sheet %q; the sheets are %s", a.Path, a.SheetName, sheets).WithField("sheet_name", sheets), nil
	}

	for _, r := range p.Rows {
		for i, cell := range r.Cells {
			r.Cells[i] = text.Truncate(f.redact(cell), maxCell)
		}
	}

	res := sheetResult{"spreadsheet", a.Path, p.Sheet, p.Sheets[:min(len(p.Sheets), maxRows)], p.Rows, p.MoreRows || p.MoreColumns}
	var warnings []string
	if p.MoreRows {
		warnings = append(warnings, "there are more rows; max_rows shows up to 50, and db_import reads all")
	}

	if p.MoreColumns {
		warnings = append(warnings, "there are more columns; max_columns shows up to 30, and db_import reads all")
	}

	return tool.Success(res, warnings...), nil
}

// pictureResult is the result of a call that shows a picture.
type pictureResult struct {
	Kind      string `json:"kind"` // image
	Path      string `json:"path"`
	MediaType string `json:"media_type"` // as sent to the model
	Bytes     int    `json:"bytes"`
}

// picture shows a file that is a picture. is reports whether the file is one. If the model does not
// accept pictures, the provider returns an error.
func picture(file *os.File, shown string, size int64) (e tool.Envelope, is bool, err error) {
	beginning := make([]byte, 512)
	n, err := file.ReadAt(beginning, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return e, false, nil // the text reader reports the error
	}

	kind := model.ImageType(beginning[:n])
	switch {
	case kind == "":
		return e, false, nil
	case size > model.MaxImage:
		return e, true, tool.RefusePath(tool.KindRejected, "%s is a picture of %d bytes; a model is shown at most %d", shown, size, model.MaxImage)
	}

	data, err := io.ReadAll(io.LimitReader(file, model.MaxImage+1))
	switch {
	case err != nil:
		return e, true, err
	case len(data) > model.MaxImage: // the file has grown since Stat
		return e, true, tool.RefusePath(tool.KindRejected, "%s is a picture of more than %d bytes, which is all that a model is shown", shown, model.MaxImage)
	case cutOff(kind, data):
		return e, true, tool.RefusePath(tool.KindRejected, "%s is a picture that is cut off; bring the whole file", shown)
	}
	return pictureOf(shown, kind, data), true, nil
}

func pictureOf(shown, kind string, data []byte) tool.Envelope {
	e := tool.Success(pictureResult{"image", shown, kind, len(data)})
	e.Images = []model.Image{{Type: kind, Data: data}}
	return e
}

// cutOff reports whether the end of a picture is missing. Providers reject the whole request
// because of one such picture.
func cutOff(kind string, data []byte) bool {
	switch kind {
	case "image/png":
		return !bytes.Contains(data, []byte("IEND"))
	case "image/jpeg":
		return !bytes.Contains(data, []byte{0xff, 0xd9})
	case "image/webp": // the size follows "RIFF" and excludes the first eight bytes
		return len(data) < 12 || uint64(binary.LittleEndian.Uint32(data[4:]))+8 > uint64(len(data))
	}
	return false
}
