package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"rouse/agent/model"
	"rouse/agent/tool"
)

// pictureResult is the envelope's result next to a picture.
type pictureResult struct {
	Kind      string `json:"kind"` // image
	Path      string `json:"path"`
	MediaType string `json:"media_type"` // as it is shown
	Bytes     int    `json:"bytes"`
}

// picture shows a file that is a picture (YOA-01); is reports whether it is one. If the model takes no
// pictures its provider says so.
func picture(file *os.File, shown string, size int64) (e tool.Envelope, is bool) {
	beginning := make([]byte, 512)
	n, err := file.ReadAt(beginning, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return e, false // the reader of texts will say what is wrong
	}

	kind := model.ImageType(beginning[:n])
	switch {
	case kind == "":
		return e, false
	case size > model.MaxImage:
		return tool.Failure(tool.KindRejected, "%s is a picture of %d bytes; a model is shown at most %d", shown, size, model.MaxImage).WithField("path", ""), true
	}

	data, err := io.ReadAll(io.LimitReader(file, model.MaxImage+1))
	if err != nil {
		return pathFailure(shown, err), true
	}
	if len(data) > model.MaxImage { // it has grown since Stat
		return tool.Failure(tool.KindRejected, "%s is a picture of more than %d bytes, which is all that a model is shown", shown, model.MaxImage).WithField("path", ""), true
	}
	if cutOff(kind, data) {
		return tool.Failure(tool.KindRejected, "%s is a picture that is cut off; bring the whole file", shown).WithField("path", ""), true
	}

	e = tool.Success(pictureResult{"image", shown, kind, len(data)})
	e.Images = []model.Image{{Type: kind, Data: data}}
	return e, true
}

// cutOff reports whether the end of a picture is missing, as its format tells. Providers refuse a whole
// request because of one such picture, and the run would fail.
func cutOff(kind string, data []byte) bool {
	switch kind {
	case "image/png":
		return !bytes.Contains(data, []byte("IEND"))
	case "image/jpeg":
		return !bytes.Contains(data, []byte{0xff, 0xd9})
	case "image/webp": // its size comes after "RIFF", and does not count the first eight bytes
		return len(data) < 12 || uint64(binary.LittleEndian.Uint32(data[4:]))+8 > uint64(len(data))
	}
	return false
}
