module peers

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	golang.org/x/sync v0.24.0
)

require github.com/bits-and-blooms/bitset v1.24.4 // indirect
