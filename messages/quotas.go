package messages

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// Entity types of quotas, by Kafka's names (KIP-546).
const (
	QuotaUser     = "user"
	QuotaClientID = "client-id"
	QuotaIP       = "ip"
)

// What quotas limit, by Kafka's names: bytes per second that a client sends and gets,
// the share of the node's request time in percent of one processor, partitions created and
// deleted per second, connections opened per second.
const (
	QuotaProduceRate  = "producer_byte_rate"
	QuotaFetchRate    = "consumer_byte_rate"
	QuotaRequests     = "request_percentage"
	QuotaMutationRate = "controller_mutation_rate"
	QuotaConnections  = "connection_creation_rate"
)

// QuotaPart is one part of a QuotaEntity: not there, the default of all without their
// own, or a name.
type QuotaPart struct {
	Set     bool
	Default bool
	Name    string
}

// QuotaEntity is whom a quota is for: a user, a client id, both, or an address. It can be
// compared.
type QuotaEntity struct {
	User, ClientID, IP QuotaPart
}

// Part is one part by its type, nil for an unknown type.
func (e *QuotaEntity) Part(entityType string) *QuotaPart {
	switch entityType {
	case QuotaUser:
		return &e.User
	case QuotaClientID:
		return &e.ClientID
	case QuotaIP:
		return &e.IP
	default:
		return nil
	}
}

// QuotaTypes are the entity types in order.
func QuotaTypes() []string { return []string{QuotaUser, QuotaClientID, QuotaIP} }

// Compare orders entities, for lists.
func (e QuotaEntity) Compare(o QuotaEntity) int {
	part := func(a, b QuotaPart) int {
		return cmp.Or(compareBool(a.Set, b.Set), compareBool(a.Default, b.Default), cmp.Compare(a.Name, b.Name))
	}
	return cmp.Or(part(e.User, o.User), part(e.ClientID, o.ClientID), part(e.IP, o.IP))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// CheckQuota returns nil if a limit may be set on the entity, else an error that wraps
// ErrInvalidRequest.
func CheckQuota(e QuotaEntity, key string, value float64) error {
	allowed := []string{QuotaProduceRate, QuotaFetchRate, QuotaRequests, QuotaMutationRate}
	if e.IP.Set {
		allowed = []string{QuotaConnections}
	}
	if e.IP.Set && !e.IP.Default {
		if _, err := netip.ParseAddr(e.IP.Name); err != nil {
			return fmt.Errorf("%w: %q is no address", ErrInvalidRequest, e.IP.Name)
		}
	}
	if !slices.Contains(allowed, key) {
		return fmt.Errorf("%w: quota %q can't be set here, only %v", ErrInvalidRequest, key, allowed)
	}
	whole := key != QuotaRequests && key != QuotaMutationRate
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0) || value <= 0:
		return fmt.Errorf("%w: quota %s is %v, want a number above 0", ErrInvalidRequest, key, value)
	case whole && value != math.Trunc(value):
		return fmt.Errorf("%w: quota %s is %v, want a whole number", ErrInvalidRequest, key, value)
	case key == QuotaConnections && value > math.MaxInt32, value > math.MaxInt64:
		return fmt.Errorf("%w: quota %s is %v, which is out of range", ErrInvalidRequest, key, value)
	}
	return nil
}

// AlterClientQuotas sets and removes quotas; one item per entry in the answer.
type AlterClientQuotas struct {
	Entries      []QuotaEntry
	ValidateOnly bool
}

// QuotaEntry is the changes of one entity. A nil value removes.
type QuotaEntry struct {
	Entity QuotaEntity
	Values []QuotaValue
}

// QuotaValue is one limit.
type QuotaValue struct {
	Key   string
	Value *float64
}

func (AlterClientQuotas) command() {}
