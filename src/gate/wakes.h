// wakes.h - the list functions of Wakes.
#pragma once

#include "bulkhead/detail/turnstile.h"

namespace bulkhead::detail {

template <class P>
void Wakes<P>::push_front(Waiter<P>& w) {
  w.next = first;
  first = &w;
  if (!last) last = &w;
}

template <class P>
void Wakes<P>::push(Waiter<P>& w) {
  w.next = nullptr;
  (last ? last->next : first) = &w;
  last = &w;
}

template <class P>
bool Wakes<P>::remove(Waiter<P>& w) {
  Waiter<P>* before = nullptr;
  for (Waiter<P>* i = first; i; before = i, i = i->next) {
    if (i != &w) continue;
    (before ? before->next : first) = w.next;
    if (last == &w) last = before;
    return true;
  }
  return false;
}

template <class P>
Waiter<P>* Wakes<P>::pop() {
  Waiter<P>* w = first;
  if (w) {
    first = w->next;
    if (!first) last = nullptr;
  }
  return w;
}

}  // namespace bulkhead::detail
