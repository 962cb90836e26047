package tabular

import (
	"archive/zip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Limits of a workbook. Its parts are compressed, so a small file can be very large inside.
const (
	maxUnzipped = 256 << 20 // bytes of one part
	maxSmall    = 16 << 20  // bytes of a part without cells
	maxParts    = 10_000    // parts of the archive
	maxStrings  = 4_000_000 // shared strings
)

// workbook is an .xlsx file of which one sheet is read. Sheets are read as a stream of XML, cell by
// cell. Libraries allocate memory by the attributes of a sheet, which a hostile file can set to any
// size.
type workbook struct {
	parts    map[string]*zip.File
	sheet    string            // part of the first visible sheet
	name     string            // name of that sheet
	others   []string          // names of the other sheets
	targets  map[string]string // parts of all sheets, by name
	date1904 bool
	shared   []string
	dates    []dateFormat // by the style of a cell
}

// openWorkbook reads all parts except the sheet. Its errors are *SyntaxError.
func openWorkbook(content string) (*workbook, error) {
	archive, err := zip.NewReader(strings.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, badXLSX("it is not an .xlsx file, or it is cut off: %v", err)
	}
	if len(archive.File) > maxParts {
		return nil, badXLSX("it holds %d files; a spreadsheet has far fewer", len(archive.File))
	}

	w := &workbook{parts: make(map[string]*zip.File, len(archive.File))}
	for _, f := range archive.File {
		// Part names are case-insensitive, and some programs write a leading slash.
		w.parts[strings.ToLower(strings.TrimPrefix(f.Name, "/"))] = f
	}
	if err := w.readWorkbook(); err != nil {
		return nil, err
	}
	if err := w.readStyles(); err != nil {
		return nil, err
	}

	return w, w.readShared()
}

func badXLSX(format string, args ...any) error {
	return &SyntaxError{1, 0, fmt.Sprintf(format, args...)}
}

// part opens a part of the archive. It returns nil if there is no such part.
func (w *workbook) part(name string) (io.ReadCloser, error) {
	f := w.parts[strings.ToLower(name)]
	if f == nil {
		return nil, nil
	}
	if f.UncompressedSize64 > maxUnzipped {
		return nil, badXLSX("its part %s has more than %d MiB when unpacked; save the table as .csv and split it", name, maxUnzipped>>20)
	}

	r, err := f.Open()
	if err != nil {
		return nil, badXLSX("its part %s cannot be unpacked: %v", name, err)
	}

	return &boundedPart{r, io.LimitReader(r, maxUnzipped)}, nil
}

// boundedPart is a part with a limit on its size, because the size in the archive is untrusted.
type boundedPart struct {
	io.Closer
	io.Reader
}

// decode decodes a small part. found is false if there is no such part.
func (w *workbook) decode(name string, into any) (found bool, err error) {
	r, err := w.part(name)
	if r == nil || err != nil {
		return false, err
	}
	defer r.Close()

	if w.parts[strings.ToLower(name)].UncompressedSize64 > maxSmall {
		return true, badXLSX("its part %s has more than %d MiB when unpacked; a spreadsheet has far less", name, maxSmall>>20)
	}
	if err := xml.NewDecoder(io.LimitReader(r, maxSmall)).Decode(into); err != nil {
		return true, badXLSX("its part %s is damaged: %v", name, err)
	}

	return true, nil
}

type relationships struct {
	All []struct {
		ID     string `xml:"Id,attr"`
		Type   string `xml:"Type,attr"`
		Target string `xml:"Target,attr"`
	} `xml:"Relationship"`
}

// readWorkbook finds the first visible sheet.
func (w *workbook) readWorkbook() error {
	const book = "xl/workbook.xml"
	var content struct {
		Properties struct {
			Date1904 string `xml:"date1904,attr"`
		} `xml:"workbookPr"`
		Sheets []struct {
			Name  string `xml:"name,attr"`
			State string `xml:"state,attr"`
			ID    string `xml:"http://schemas.openxmlformats.org/officeDocument/2006/relationships id,attr"`
		} `xml:"sheets>sheet"`
	}

	found, err := w.decode(book, &content)
	if err != nil {
		return err
	}
	// Other zip archives, such as .ods and .docx, do not have this part.
	if !found {
		return badXLSX("there is no workbook in it, so it is no .xlsx file (.xls, .xlsb and .ods are not read); save it as .xlsx or .csv")
	}

	var links relationships
	if _, err := w.decode("xl/_rels/workbook.xml.rels", &links); err != nil {
		return err
	}

	w.date1904 = content.Properties.Date1904 == "1" || content.Properties.Date1904 == "true"
	targets := make(map[string]string, len(links.All))
	for _, l := range links.All {
		if !strings.HasSuffix(l.Type, "/worksheet") {
			continue
		}

		// A target without a leading slash is relative to the folder of the workbook.
		target := strings.TrimPrefix(l.Target, "/")
		if target == l.Target {
			target = path.Join("xl", target)
		}

		targets[l.ID] = target
	}

	w.targets = make(map[string]string, len(content.Sheets))
	for _, sheet := range content.Sheets {
		target := targets[sheet.ID]
		if target != "" {
			w.targets[sheet.Name] = target
		}
		// Chart sheets have no worksheet part.
		if target == "" || sheet.State == "hidden" || sheet.State == "veryHidden" || w.sheet != "" {
			w.others = append(w.others, sheet.Name)
			continue
		}
		w.sheet, w.name = target, sheet.Name
	}
	if w.sheet == "" || w.parts[strings.ToLower(w.sheet)] == nil {
		return badXLSX("it has no sheet that can be seen")
	}

	return nil
}

// readStyles finds the styles that show a number as a date or a time.
func (w *workbook) readStyles() error {
	var styles struct {
		Formats []struct {
			ID   int    `xml:"numFmtId,attr"`
			Code string `xml:"formatCode,attr"`
		} `xml:"numFmts>numFmt"`
		Cells []struct {
			Format int `xml:"numFmtId,attr"`
		} `xml:"cellXfs>xf"`
	}
	if _, err := w.decode("xl/styles.xml", &styles); err != nil {
		return err
	}

	own := make(map[int]dateFormat, len(styles.Formats))
	for _, f := range styles.Formats {
		// A format in the file overrides the built-in format with the same number.
		own[f.ID] = formatOfCode(f.Code)
	}

	for _, c := range styles.Cells {
		format, ok := own[c.Format]
		if !ok {
			format = formatOfNumber(c.Format)
		}
		w.dates = append(w.dates, format)
	}

	return nil
}

// readShared reads the shared strings, which cells refer to by number.
func (w *workbook) readShared() error {
	const name = "xl/sharedStrings.xml"
	r, err := w.part(name)
	if r == nil || err != nil {
		return err
	}
	defer r.Close()

	x := xml.NewDecoder(r)
	var text strings.Builder
	inText, phonetic := false, false
	for {
		token, err := x.RawToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return badXLSX("its part %s is damaged: %v", name, err)
		}

		switch t := token.(type) {
		case xml.StartElement:
			switch t.Name.Local {
			case "si":
				text.Reset()
			case "rPh":
				phonetic = true
			case "t":
				// Rich text consists of several <t> in one <si>, which are joined.
				inText = !phonetic
			}
		case xml.EndElement:
			switch t.Name.Local {
			case "si":
				if len(w.shared) == maxStrings {
					return badXLSX("it has more than %d different texts; save the table as .csv", maxStrings)
				}
				w.shared = append(w.shared, text.String())
			case "rPh":
				phonetic = false
			case "t":
				inText = false
			}
		case xml.CharData:
			if inText {
				text.Write(t)
			}
		}
	}
}
