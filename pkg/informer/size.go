package informer

import (
	"math/bits"
	"reflect"
	"time"
)

const (
	// slotSize is what an object takes in the maps of a cache in addition to itself and its key: a
	// slot of the items, and one in each of about two indexes, with a third of spare room.
	slotSize = 128
	// deepest ends a walk through something that contains itself, which API objects do not.
	deepest = 64
)

// sizeOf returns roughly how many bytes of the heap an object uses, with everything that it points
// to. It knows how Go allocates, so it works for any type. What two objects share counts in both.
func sizeOf(obj any) int64 { return heapOf(reflect.ValueOf(obj), deepest) }

// heapOf returns the size of what v refers to, without v itself.
func heapOf(v reflect.Value, depth int) int64 {
	if depth == 0 {
		return 0
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || v.Type() == reflect.TypeFor[*time.Location]() {
			return 0 // Locations belong to the process.
		}
		return allocated(int64(v.Type().Elem().Size())) + heapOf(v.Elem(), depth-1)
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		inline := int64(0)
		if v.Elem().Kind() != reflect.Pointer && v.Elem().Kind() != reflect.Map {
			inline = allocated(int64(v.Elem().Type().Size()))
		}
		return inline + heapOf(v.Elem(), depth-1)
	case reflect.String:
		return allocated(int64(v.Len()))
	case reflect.Slice:
		return allocated(int64(v.Cap())*int64(v.Type().Elem().Size())) + elementsOf(v, depth)
	case reflect.Array:
		return elementsOf(v, depth)
	case reflect.Map:
		return mapOf(v, depth)
	case reflect.Struct:
		size := int64(0)
		for i := range v.NumField() {
			size += heapOf(v.Field(i), depth-1)
		}
		return size
	}
	return 0
}

func elementsOf(v reflect.Value, depth int) int64 {
	size := int64(0)
	switch v.Type().Elem().Kind() {
	case reflect.Pointer, reflect.Interface, reflect.String, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		for i := range v.Len() {
			size += heapOf(v.Index(i), depth-1)
		}
	}
	return size
}

// mapOf counts a map as Go's runtime lays it out: up to 8 entries in a group, more in tables that
// are at most seven eighths full.
func mapOf(v reflect.Value, depth int) int64 {
	if v.IsNil() {
		return 0
	}
	const header, group = 48, 8
	slot := int64(v.Type().Key().Size() + v.Type().Elem().Size())
	size := int64(header)
	switch n := v.Len(); {
	case n > group:
		size += allocated(int64(1) << bits.Len(uint(n*8/7)) * (slot + 1))
	case n > 0:
		size += allocated(group * (slot + 1))
	}
	for entries := v.MapRange(); entries.Next(); {
		size += heapOf(entries.Key(), depth-1) + heapOf(entries.Value(), depth-1)
	}
	return size
}

// allocated returns the size that the allocator uses for n bytes: it has size classes, 16 bytes
// apart at first and an eighth apart later. Small things without pointers share one block.
func allocated(n int64) int64 {
	step := int64(8)
	switch {
	case n >= 16 && n <= 256:
		step = 16
	case n > 256:
		step = int64(1) << (bits.Len64(uint64(n-1)) - 4)
	}
	return (n + step - 1) / step * step
}
