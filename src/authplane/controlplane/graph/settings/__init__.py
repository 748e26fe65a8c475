"""What holds for the whole gateway.

AuthplaneConfiguration and Contour's settings come in; one value and its problems go out.
"""
