package preview

import (
	"bytes"
	"image/png"

	"golang.org/x/image/bmp"
)

// maxPixels limits the size of a picture, because a small file can declare a huge picture.
const maxPixels = 25_000_000

func pngOf(content []byte) ([]byte, error) {
	head, err := bmp.DecodeConfig(bytes.NewReader(content))
	if err != nil {
		return nil, fault("is a BMP picture that cannot be read: %v; save it as PNG", err)
	}
	if n := int64(head.Width) * int64(head.Height); n > maxPixels {
		return nil, fault("is a BMP picture of %d times %d pixels, and %d million are the most; make it smaller", head.Width, head.Height, maxPixels/1_000_000)
	}

	picture, err := bmp.Decode(bytes.NewReader(content))
	if err != nil {
		return nil, fault("is a BMP picture that cannot be read: %v; save it as PNG", err)
	}

	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		return nil, fault("is a BMP picture that cannot be shown: %v; save it as PNG", err)
	}

	return out.Bytes(), nil
}
