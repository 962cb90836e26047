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

// pictureResult is the result of a call that shows a picture.
type pictureResult struct {
	Kind      string `json:"kind"` // image
	Path      string `json:"path"`
	MediaType string `json:"media_type"` // as it is shown
	Bytes     int    `json:"bytes"`
}

// picture shows a file that is a picture (YOA-01), or reports false. If the model takes no pictures
// its provider says so.
func picture(file *os.File, shown string, size int64) (e tool.Envelope, is bool, err error) {
	beginning := make([]byte, 512)
	n, err := file.ReadAt(beginning, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return e, false, nil // the reader of texts will say what is wrong
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
	case len(data) > model.MaxImage: // it has grown since Stat
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

// cutOff reports whether the end of a picture is missing. Providers refuse a whole request because
// of one such picture.
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
